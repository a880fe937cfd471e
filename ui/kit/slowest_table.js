// The table of the slowest requests. All content is set as text and never parsed as markup.
export default function ({ data, parentElement }) {
  const table = parentElement.querySelector("table");
  const focused = parentElement.activeElement?.dataset?.key ?? null;

  const element = (tag, attributes, ...children) => {
    const made = document.createElement(tag);
    Object.assign(made, attributes);
    made.append(...children);
    return made;
  };

  const bar = (phases) => {
    const drawn = element("span", { className: "bar" });
    drawn.title = phases.map((phase) => phase.title).join("\n");
    for (const phase of phases) {
      const part = element("i", {});
      part.style.width = `${phase.share * 100}%`;
      part.style.background = phase.colour;
      drawn.append(part);
    }
    return drawn;
  };

  const cell = (row, column) => {
    const made = element("td", {});
    made.dataset.rank = column.rank;
    if (column.number) made.classList.add("number");
    if (column.name === "phases") {
      made.append(bar(row.phases));
    } else if (column.name === "id") {
      const link = element("a", { title: row.id }, row.id);
      link.setAttribute("href", row.href);
      link.setAttribute("target", "_self");
      link.dataset.key = row.key;
      made.append(link);
    } else {
      made.append(row[column.name]);
      made.title = row[column.name];
    }
    return made;
  };

  const head = element("tr", {});
  for (const column of data.columns) {
    const made = element("th", { title: column.help, scope: "col" }, column.title);
    made.dataset.rank = column.rank;
    if (column.number) made.classList.add("number");
    head.append(made);
  }

  const rows = data.rows.map((row) => {
    const made = element("tr", {}, ...data.columns.map((column) => cell(row, column)));
    made.onclick = (event) => {
      if (!event.target.closest("a")) made.querySelector("a").click();
    };
    return made;
  });

  table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  if (focused) {
    table.querySelectorAll("a").forEach((link) => {
      if (link.dataset.key === focused) link.focus({ preventScroll: true });
    });
  }
}
