"use strict";
(() => {
  const box = document.getElementById("readout");

  const parse = (text) => {
    const data = JSON.parse(text);
    data.heads = data.heads.split("|");
    for (const row of data.rows) row.texts = row.texts.split("|");
    return data;
  };

  const line = (row, i) => {
    const item = document.createElement("div");
    const mark = document.createElement("i");
    mark.className = row.style;
    const label = document.createElement("span");
    label.textContent = row.label;
    const value = document.createElement("em");
    value.textContent = row.texts[i];
    item.append(mark, label, value);
    return item;
  };

  const fill = (data, i) => {
    const head = document.createElement("b");
    head.textContent = data.heads[i];
    box.replaceChildren(head, ...data.rows.filter((row) => row.texts[i]).map((row) => line(row, i)));
  };

  const place = (event) => {
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const right = event.clientX + 16 + width > document.documentElement.clientWidth;
    const left = right ? event.clientX - 16 - width : event.clientX + 16;
    box.style.left = `${Math.max(4, left)}px`;
    box.style.top = `${Math.max(4, Math.min(event.clientY + 12, window.innerHeight - height - 8))}px`;
  };

  const nearest = (places, x) =>
    places.reduce((best, at, i) => (Math.abs(at - x) < Math.abs(places[best] - x) ? i : best), 0);

  const cursorOf = (chart) => {
    const found = chart.querySelector(".cursor");
    if (found) return found;
    const made = document.createElementNS("http://www.w3.org/2000/svg", "line");
    made.setAttribute("class", "cursor");
    return chart.appendChild(made);
  };

  const move = (chart, event) => {
    const seen = [...chart.querySelectorAll("[data-readout]")].find((g) => getComputedStyle(g).display !== "none");
    if (!seen) return;
    const data = (seen.parsed ??= parse(seen.dataset.readout));
    const area = chart.getBoundingClientRect();
    const i = nearest(data.x, ((event.clientX - area.left) / area.width) * chart.viewBox.baseVal.width);
    const cursor = cursorOf(chart);
    const at = { x1: data.x[i], x2: data.x[i], y1: data.span[0], y2: data.span[1] };
    for (const [name, value] of Object.entries(at)) cursor.setAttribute(name, value);
    fill(data, i);
    place(event);
  };

  const leave = (chart) => {
    box.hidden = true;
    chart.querySelector(".cursor")?.remove();
  };

  for (const chart of document.querySelectorAll("svg.chart")) {
    // The browser's own tooltip of <title> would cover the read-out; aria-label keeps the name.
    chart.querySelector("title")?.remove();
    chart.addEventListener("pointermove", (event) => move(chart, event));
    chart.addEventListener("pointerdown", (event) => move(chart, event));
    chart.addEventListener("pointerleave", () => leave(chart));
  }

  const highlight = (section) => {
    const pressed = [...section.querySelectorAll('.key [aria-pressed="true"]')].map((b) => b.dataset.key);
    for (const series of section.querySelectorAll(".figures:not(.panels) .series"))
      series.classList.toggle("dimmed", pressed.length > 0 && !pressed.includes(series.dataset.label));
  };

  for (const button of document.querySelectorAll(".key button"))
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      highlight(button.closest("section"));
    });
})();
