"""The root-cause explorer: Streamlit pages that show the data in the store."""
