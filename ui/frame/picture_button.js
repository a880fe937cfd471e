// Download a chart as a PNG. Plotly's own button works only with the mouse. This button also works
// with the keyboard, and clicks Plotly's button. The chart on the page has no title, caption or
// background, so they are added to its layout before the click and removed at once afterwards:
// Plotly copies the layout during the click. One listener serves all charts, because charts are
// drawn again on each refresh.
if (!window.tailspanPictures) {
  window.tailspanPictures = true;
  const ROOM = 64, NARROWEST = 760;  // pixels: height of two lines, width of the caption
  const press = (plot, { title, caption }) => {
    const options = plot._context.toImageButtonOptions;
    const shown = plot._fullLayout;
    const kept = { layout: plot.layout, height: options.height, width: options.width };
    const page = getComputedStyle(document.querySelector("[data-testid='stApp']"));
    plot.layout = {
      ...plot.layout,
      paper_bgcolor: page.backgroundColor,
      margin: { ...shown.margin, t: shown.margin.t + ROOM },
      title: {
        // Streamlit removes a script that contains an HTML tag, so \x3c replaces the left bracket.
        text: `\x3cb>${title}\x3c/b>\x3cbr>\x3cspan style="font-size:12px">${caption}\x3c/span>`,
        font: { size: 15, color: page.color },
        x: 0, xanchor: "left", xref: "container", y: 1, yanchor: "top", yref: "container",
        pad: { t: 24, l: 12 }, automargin: false,
      },
    };
    options.height = shown.height + ROOM;
    options.width = Math.max(shown.width, NARROWEST);
    try {
      plot.querySelector(".modebar-btn")?.click();
    } finally {
      plot.layout = kept.layout;
      options.height = kept.height;
      options.width = kept.width;
    }
  };
  document.addEventListener("click", ({ target }) => {
    const asked = target.closest?.("button[data-picture]");
    const plot = asked?.closest("[class*='st-key-chart_']")?.querySelector(".js-plotly-plot");
    if (plot) press(plot, asked.dataset);
  });
}
