"""The explorer's entry point: `streamlit run ui/app.py`."""

from ui.frame.app import show

if __name__ == "__main__":
    show()
