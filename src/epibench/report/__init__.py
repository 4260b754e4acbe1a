"""Pages that show results and compute no metric."""

from epibench.report.run_page import write_run_page

__all__ = ["write_run_page"]
