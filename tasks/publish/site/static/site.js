"use strict";
function draw(root) {
  for (const source of root.querySelectorAll("script[data-chart]")) {
    const place = document.getElementById(source.dataset.chart);
    if (!place || place.dataset.drawn || typeof Plotly === "undefined") { continue; }
    place.dataset.drawn = "yes";
    const figure = JSON.parse(source.textContent);
    Plotly.newPlot(place, figure.data, figure.layout,
      { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] });
  }
}
document.addEventListener("DOMContentLoaded", () => draw(document));
document.addEventListener("click", (event) => {
  const copied = event.target.closest("[data-copy]");
  if (copied) {
    navigator.clipboard.writeText(copied.dataset.copy).then(() => { copied.textContent = "Copied"; });
  }
  const cancelled = event.target.closest("[data-cancel]");
  if (cancelled) { htmx.trigger(document.querySelector(cancelled.dataset.cancel), "htmx:abort"); }
});
