// "Copy link" copies the address of the displayed range to the clipboard. Browsers offer the
// clipboard only over https or on loopback. On other pages, the script copies from a temporary
// field. One listener serves the whole page, because the button is drawn again on each refresh.
if (!window.tailspanLinks) {
  window.tailspanLinks = true;
  const copied = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    if (!done) throw new Error("the browser does not allow it");
  };
  document.addEventListener("click", async ({ target }) => {
    const asked = target.closest?.("button[data-link]");
    if (!asked) return;
    const address = new URL(asked.dataset.link, location.href).href;
    try {
      await copied(address);
      asked.textContent = "Link copied";
    } catch {
      asked.textContent = "Not copied: pause, then copy the address";
    }
    setTimeout(() => { asked.textContent = "Copy link"; }, 3000);
  });
}
