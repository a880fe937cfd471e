// A chart as a PNG, by a button that the keyboard reaches: Plotly's own is for the mouse alone,
// so it is pressed from here. One listener for all charts, whenever they are drawn.
if (!window.tailspanPictures) {
  window.tailspanPictures = true;
  document.addEventListener("click", ({ target }) => {
    const asked = target.closest?.("button[data-picture]");
    asked
      ?.closest("[class*='st-key-chart_']")
      ?.querySelector(".modebar-btn")
      ?.click();
  });
}
