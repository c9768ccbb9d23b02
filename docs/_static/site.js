"use strict";
// What style sheets cannot say: the head of the column that a cell is in, for rows shown as cards;
// whether a cell is a figure; and which images are plots.
addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".table-wrapper table")) {
    const heads = [...table.querySelectorAll("thead th")].map(head => head.textContent.trim());
    if (heads.length > 3) table.classList.add("cards");
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, i) => {
        cell.dataset.head = heads[i] || "";
        if (/^[\d.,/ →%×-]+$/.test(cell.textContent)) cell.classList.add("figure");
        if (!cell.textContent.trim()) cell.replaceChildren();
      });
      row.cells[0]?.classList.add("name");
    }
  }
  for (const image of document.querySelectorAll("img[alt]")) {
    if (/-3\.\d+\.svg$/.test(image.getAttribute("src"))) image.classList.add("plot");
  }
});
