// The table of replicas, with a sparkline per measure. All content is set as text, not as markup.
const SVG = "http://www.w3.org/2000/svg";
const WIDE = 64;
const HIGH = 18;

export default function ({ data, parentElement }) {
  const table = parentElement.querySelector("table");
  const focused = parentElement.activeElement?.getAttribute?.("href") ?? null;

  const element = (tag, attributes, ...children) => {
    const made = document.createElement(tag);
    Object.assign(made, attributes);
    made.append(...children);
    return made;
  };

  const drawn = (tag, attributes) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };

  // Values are shares of the measure's scale, from 0 to 1; null is a gap.
  const spark = (values) => {
    const picture = drawn("svg", {
      viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, "aria-hidden": "true",
    });
    const step = WIDE / Math.max(1, values.length);
    let path = "";
    values.forEach((value, place) => {
      if (value === null) return;
      const y = (HIGH - 1 - value * (HIGH - 2)).toFixed(1);
      const before = place > 0 && values[place - 1] !== null;
      path += `${before ? "L" : "M"}${(place * step).toFixed(1)} ${y}`;
      path += `L${((place + 1) * step).toFixed(1)} ${y}`;
    });
    picture.append(drawn("path", { d: path, class: "line" }));
    return picture;
  };

  const cell = (row, column) => {
    const made = element("td", {});
    made.dataset.rank = column.rank;
    const value = row[column.name];
    if (column.name === "name") {
      const link = element("a", { title: value.title }, value.text);
      link.setAttribute("href", value.href);
      link.setAttribute("target", "_self");
      made.append(link);
    } else if (column.name === "problem") {
      made.classList.add("problems");
      for (const each of value) {
        made.append(element("span", { className: "problem", title: each.why }, each.what));
      }
      if (!value.length) made.append(element("span", { className: "calm" }, "–"));
    } else {
      made.classList.add("number");
      made.title = value.title;
      made.append(element("span", {}, value.text));
      if (value.small) made.append(element("small", {}, value.small));
      if (value.line) made.append(spark(value.line));
    }
    return made;
  };

  const head = element("tr", {});
  for (const column of data.columns) {
    const made = element("th", { title: column.help, scope: "col" }, column.title);
    if (column.unit) made.append(element("small", {}, column.unit));
    made.dataset.rank = column.rank;
    if (column.number) made.classList.add("number");
    head.append(made);
  }
  const rows = data.rows.map((row) =>
    element("tr", {}, ...data.columns.map((column) => cell(row, column))),
  );
  table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  if (focused) {
    table.querySelectorAll("a").forEach((link) => {
      if (link.getAttribute("href") === focused) link.focus({ preventScroll: true });
    });
  }
}
