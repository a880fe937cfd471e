// Back and Forward must not add entries to the history. If the reader is faster than the server,
// Streamlit adds an entry for a page that the reader has already left. If the reader has not
// clicked or pressed a key since Back or Forward, this entry replaces the current one.
if (!window.tailspanHistory) {
  window.tailspanHistory = true;
  let walking = false;
  window.addEventListener("popstate", () => { walking = true; }, true);
  for (const gesture of ["pointerdown", "click", "keydown"]) {
    const choose = (event) => {
      const browsing = event.altKey || event.metaKey || event.button > 2;
      if (!browsing) walking = false;
    };
    window.addEventListener(gesture, choose, true);
  }
  const push = history.pushState.bind(history);
  history.pushState = (...entry) => (walking ? history.replaceState(...entry) : push(...entry));
}
