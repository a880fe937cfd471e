// A live page must not look current if it receives no more refreshes, for example because the
// server has stopped or the computer has slept. `.live` has the time at which the server drew the
// page, and the seconds between refreshes. After three missed refreshes, and at least 20 s, a
// warning appears.
if (!window.tailspanConnection) {
  window.tailspanConnection = true;
  let drawn = null, since = Date.now();
  setInterval(() => {
    const live = document.querySelector(".freshness .live");
    if (live?.dataset.drawn !== drawn) {
      drawn = live?.dataset.drawn;
      since = Date.now();
    }
    const longest = Math.max(3 * Number(live?.dataset.every ?? 0), 20);
    const lost = live && Date.now() - since > longest * 1000;
    document.body.classList.toggle("lost", Boolean(lost));
  }, 1000);
}
