"""The root-cause explorer: The explorer: Streamlit pages that show the data in the store."""
