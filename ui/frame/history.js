// Back and Forward walk through the history and add nothing to it. If the reader is faster than
// the server, Streamlit adds an entry for a page that was already left; without a click or a key
// in between, that entry replaces the current one instead.
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
