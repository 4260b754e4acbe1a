"""Pages that show results; they read numbers and compute no metric."""

from epibench.report.run_page import write_folder_page, write_run_page
from epibench.report.score_page import write_score_page

__all__ = ["write_folder_page", "write_run_page", "write_score_page"]
