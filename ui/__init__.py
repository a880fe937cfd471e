"""The root-cause explorer: Streamlit pages over the store."""
