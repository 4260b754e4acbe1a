"""Pictures of what methods predict."""
