"use strict";
(function () {
  // Everything that came from an agent or a dataset is written as a text node, never as markup.
  var byId = function (id) { return document.getElementById(id); };
  var data = JSON.parse(byId("index").textContent);
  var LABEL = 0, REPEAT = 1, TASK = 2, INPUT = 3, OUTPUT = 4, CELLS = 5, CHANGE = 6;
  var STATUS = 0, PASSED = 1, TRIES = 2, LATENCY = 3, TTFT = 4, TOKENS = 5, ERROR = 6, SCORES = 7;
  var ROW_HEIGHT = 38, SPARE = 12;
  var comparing = data.kind === "comparison";

  function make(tag, kind, text) {
    var node = document.createElement(tag);
    if (kind) node.className = kind;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  // ---- theme -------------------------------------------------------------------------------

  var root = document.documentElement;
  var system = window.matchMedia("(prefers-color-scheme: dark)");
  function setTheme(dark) {
    root.dataset.theme = dark ? "dark" : "light";
  }
  setTheme(system.matches);
  system.addEventListener("change", function () { setTheme(system.matches); });
  byId("theme").addEventListener("click", function () { setTheme(root.dataset.theme !== "dark"); });

  // ---- payloads ----------------------------------------------------------------------------

  var chunks = new Map();
  function chunk(number) {
    if (!chunks.has(number)) {
      var holder = byId("chunk-" + number);
      if (!holder) return null;
      if (chunks.size > 40) chunks.delete(chunks.keys().next().value);
      chunks.set(number, JSON.parse(holder.textContent));
    }
    return chunks.get(number);
  }
  function payload(row) {
    var held = chunk(Math.floor(row / data.chunk));
    return held && held[row % data.chunk];
  }

  // ---- values as text ----------------------------------------------------------------------

  function time(value) {
    if (value === null || value === undefined) return "";
    if (value < 10) return Number(value.toPrecision(2)) + " ms";
    return value < 999.5 ? Math.round(value) + " ms" : (value / 1000).toFixed(2) + " s";
  }
  function count(value) {
    return value === null || value === undefined ? "" : Math.round(value).toLocaleString("en-US");
  }
  function score(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "string") return value;
    return String(Math.round(value * 1000) / 1000);
  }
  function shown(value) {
    if (value === undefined || value === null) return "";
    return typeof value === "string" ? value : JSON.stringify(value, null, 2);
  }

  // ---- columns -----------------------------------------------------------------------------

  function cellOf(row, run) { return row[CELLS][run]; }
  function column(title, width, value, draw, numeric) {
    var room = Math.max(width, Math.min(170, title.length * 7.5 + 28));
    return { title: title, width: room, value: value, draw: draw, numeric: numeric };
  }
  function plain(title, width, place) {
    return column(title, width, function (row) { return row[place]; },
      function (node, row) { node.textContent = row[place]; });
  }
  function statusText(cell) {
    if (!cell) return "absent";
    return cell[TRIES] > 1 ? cell[PASSED] + "/" + cell[TRIES] : cell[STATUS];
  }
  function status(title, run) {
    return column(title, 104,
      function (row) { return cellOf(row, run) ? cellOf(row, run)[PASSED] / cellOf(row, run)[TRIES] : -1; },
      function (node, row) {
        var cell = cellOf(row, run);
        node.append(make("span", "pill " + (cell ? cell[STATUS] : "absent"), statusText(cell)));
      });
  }
  function measured(title, run, place, text, width) {
    var value = function (row) { var cell = cellOf(row, run); return cell ? cell[place] : null; };
    return column(title, width, value, function (node, row) { node.textContent = text(value(row)); }, true);
  }
  function scored(title, run, metric) {
    var value = function (row) { var cell = cellOf(row, run); return cell ? cell[SCORES][metric] : null; };
    return column(title, 88, value, function (node, row) {
      var found = value(row);
      node.textContent = score(found);
      if (data.checks[metric]) node.className += verdictOf(found);
    }, true);
  }
  function verdictOf(passed) {
    return passed === 1 ? " score-pass" : passed === 0 ? " score-fail" : "";
  }
  // The room that a column's longest text needs, with its padding.
  var pen = document.createElement("canvas").getContext("2d"), font = getComputedStyle(document.body);
  pen.font = font.fontSize + " " + font.fontFamily;
  function fitting(textOf) {
    var longest = data.rows.reduce(function (found, row) {
      var text = textOf(row);
      return text.length > found.length ? text : found;
    }, "");
    return Math.min(480, Math.ceil(pen.measureText(longest).width * 1.04) + 22);
  }
  function any(place) {
    return data.rows.some(function (row) {
      return row[CELLS].some(function (cell) { return cell && cell[place] !== null && cell[place] !== ""; });
    });
  }

  // In a comparison one column holds the values of all runs, and sorts by how much they changed.
  function joined(title, valueOf, textOf, isCheck) {
    var width = fitting(function (row) {
      return row[CELLS].map(function (cell) { return (cell && textOf(valueOf(cell))) || "\u2013"; }).join(" \u2192 ");
    });
    var change = function (row) {
      var first = row[CELLS][0] && valueOf(row[CELLS][0]), most = null;
      row[CELLS].slice(1).forEach(function (cell) {
        var value = cell && valueOf(cell);
        if (typeof first !== "number" || typeof value !== "number") return;
        if (most === null || Math.abs(value - first) > Math.abs(most)) most = value - first;
      });
      return most;
    };
    return column(title, width, change, function (node, row) {
      row[CELLS].forEach(function (cell, run) {
        if (run) node.append(make("span", "dim", " \u2192 "));
        var value = cell ? valueOf(cell) : null;
        node.append(make("span", isCheck ? verdictOf(value) : "", textOf(value) || "\u2013"));
      });
    }, true);
  }
  function comparedColumns() {
    var made = [plain("item", Math.min(110, fitting(function (row) { return String(row[LABEL]); }) + 8), LABEL)];
    if (data.rows.some(function (row) { return row[CHANGE]; })) made.push(changeColumn());
    data.runs.forEach(function (name, run) { made.push(status(name, run)); });
    data.metrics.forEach(function (metric, place) {
      var valueOf = function (cell) { return cell[SCORES][place]; };
      made.push(joined(metric, valueOf, score, data.checks[place]));
    });
    if (any(LATENCY)) made.push(joined("latency", function (cell) { return cell[LATENCY]; }, time));
    return made;
  }
  function resultColumns() {
    var made = [plain("row", 110, LABEL)];
    if (data.repeats) made.push(plain("repeat", 70, REPEAT));
    made.push(status("status", 0));
    if (data.rows.some(function (row) { return row[CHANGE]; })) made.push(changeColumn());
    data.metrics.forEach(function (metric, place) { made.push(scored(metric, 0, place)); });
    if (any(LATENCY)) made.push(measured("latency", 0, LATENCY, time, 92));
    if (any(TTFT)) made.push(measured("first token", 0, TTFT, time, 96));
    if (any(TOKENS)) made.push(measured("tokens", 0, TOKENS, count, 84));
    if (any(ERROR)) made.push(column("error", 110,
      function (row) { return cellOf(row, 0)[ERROR]; },
      function (node, row) { node.textContent = cellOf(row, 0)[ERROR]; }));
    return made;
  }
  function columns() {
    var wide = comparing ? [plain("input", 110, INPUT), plain("output", 150, OUTPUT)] :
      [plain("input", 200, INPUT), plain("output", 240, OUTPUT)];
    wide.forEach(function (one) { one.dim = true; one.grow = 5; });
    return (comparing ? comparedColumns() : resultColumns()).concat(wide);
  }
  function changeColumn() {
    var order = { broken: 0, both: 1, fixed: 2, "": 3 };
    return column("change", 92, function (row) { return order[row[CHANGE]]; }, function (node, row) {
      if (row[CHANGE]) node.append(make("span", "pill " + row[CHANGE], row[CHANGE]));
    });
  }

  // Every line is laid out by itself, so widths must not depend on what a line holds.
  var COLUMNS = columns();
  var template = COLUMNS.map(function (one) { return "minmax(" + one.width + "px, " + (one.grow || 1) + "fr)"; }).join(" ");
  var least = COLUMNS.reduce(function (sum, one) { return sum + one.width; }, 0) + "px";

  // ---- sorting and filtering ---------------------------------------------------------------

  var view = data.rows.map(function (_, place) { return place; });
  var sorted = { column: null, down: false };
  var wanted = "";
  var needle = "";
  var texts = new Array(data.rows.length);

  function kindsOf(row) {
    var kinds = {};
    if (row[CHANGE]) kinds[row[CHANGE]] = true;
    if (row[CHANGE] === "both") kinds.broken = kinds.fixed = true;
    if (comparing) {
      if (row[CELLS].indexOf(null) >= 0) kinds["not in all runs"] = true;
    } else {
      kinds[row[CELLS][0][STATUS]] = true;
      data.metrics.forEach(function (metric, place) {
        if (row[CELLS][0][SCORES][place] === 0) kinds[metric + " = 0"] = true;
      });
    }
    return kinds;
  }
  var kinds = data.rows.map(kindsOf);

  function head(place) {
    var row = data.rows[place];
    return (row[LABEL] + " " + row[TASK] + " " + row[INPUT] + " " + row[OUTPUT] + " " +
      row[CELLS].map(function (cell) { return cell ? cell[ERROR] : ""; }).join(" ")).toLowerCase();
  }
  var heads = null;
  function matches(place) {
    if (wanted && !kinds[place][wanted]) return false;
    if (!needle) return true;
    if (!heads) heads = data.rows.map(function (_, row) { return head(row); });
    if (heads[place].indexOf(needle) >= 0) return true;
    return texts[place] !== undefined && texts[place].indexOf(needle) >= 0;
  }

  function compareValues(a, b) {
    var missing = function (value) { return value === null || value === undefined || value === ""; };
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    var result = typeof a === "string" || typeof b === "string" ?
      String(a).localeCompare(String(b), undefined, { numeric: true }) : a - b;
    return sorted.down ? -result : result;
  }
  function refresh() {
    view = [];
    for (var place = 0; place < data.rows.length; place++) if (matches(place)) view.push(place);
    if (sorted.column) {
      var value = sorted.column.value;
      view.sort(function (a, b) {
        return compareValues(value(data.rows[a]), value(data.rows[b])) || a - b;
      });
    }
    body.style.height = view.length ? view.length * ROW_HEIGHT + "px" : "";
    byId("shown").textContent = view.length === data.rows.length ? "" :
      count(view.length) + " of " + count(data.rows.length);
    drawn = {};
    body.textContent = "";
    if (!view.length) body.append(make("div", "empty", "Nothing matches."));
    draw();
  }

  // Full texts are made searchable bit by bit, so that typing never waits for megabytes of JSON.
  var reading = null;
  function readTexts(from) {
    var stop = Date.now() + 12;
    var place = from;
    for (; place < data.rows.length && Date.now() < stop; place++) {
      var found = payload(place);
      texts[place] = found ? JSON.stringify(found).toLowerCase() : "";
    }
    if (place < data.rows.length) {
      reading = setTimeout(readTexts, 0, place);
    } else {
      reading = true;
    }
    if (needle && (reading === true || place % 20 < 2)) refresh();
  }

  function filterButton(label, value, number) {
    var button = make("button", "", label);
    if (number !== undefined) button.append(make("span", "n", count(number)));
    button.type = "button";
    button.setAttribute("aria-pressed", String(wanted === value));
    button.addEventListener("click", function () {
      wanted = wanted === value ? "" : value;
      drawFilters();
      grid.scrollTop = 0;
      refresh();
    });
    return button;
  }
  function drawFilters() {
    var numbers = {};
    kinds.forEach(function (one) {
      Object.keys(one).forEach(function (kind) { numbers[kind] = (numbers[kind] || 0) + 1; });
    });
    var holder = byId("filters");
    holder.textContent = "";
    holder.append(filterButton("all", ""));
    var known = ["failed", "incomplete", "skipped", "success", "broken", "fixed", "both"];
    var place = function (kind) { return known.indexOf(kind) < 0 ? known.length : known.indexOf(kind); };
    Object.keys(numbers).sort(function (a, b) {
      return place(a) - place(b) || a.localeCompare(b);
    }).slice(0, 9).forEach(function (kind) {
      holder.append(filterButton(kind, kind, numbers[kind]));
    });
  }

  // ---- the grid: only rows in view are in the document -------------------------------------

  var grid = byId("grid"), body = byId("grid-body");
  var drawn = {};
  var picked = -1;

  function drawHead() {
    var line = byId("grid-head");
    line.textContent = "";
    line.style.gridTemplateColumns = template;
    line.style.minWidth = least;
    COLUMNS.forEach(function (one) {
      var cell = make("div", one.numeric ? "num" : "");
      cell.setAttribute("role", "columnheader");
      var arrow = sorted.column === one ? (sorted.down ? " \u2193" : " \u2191") : "";
      var button = make("button", "", one.title + arrow);
      button.type = "button";
      button.title = "Sort by " + one.title;
      if (arrow) cell.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      button.addEventListener("click", function () { sortBy(one); });
      cell.append(button);
      line.append(cell);
    });
  }
  function sortBy(one) {
    if (sorted.column !== one) sorted = { column: one, down: Boolean(one.numeric) };
    else if (sorted.down === Boolean(one.numeric)) sorted.down = !sorted.down;
    else sorted = { column: null, down: false };
    drawHead();
    refresh();
  }
  function drawRow(position) {
    var place = view[position], row = data.rows[place];
    var line = make("div", "grid-row" + (place === picked ? " picked" : ""));
    line.setAttribute("role", "row");
    line.style.gridTemplateColumns = template;
    line.style.minWidth = least;
    line.style.transform = "translateY(" + position * ROW_HEIGHT + "px)";
    COLUMNS.forEach(function (one) {
      var cell = make("div", (one.numeric ? "num" : "") + (one.dim ? " dim" : ""));
      cell.setAttribute("role", "cell");
      one.draw(cell, row);
      line.append(cell);
    });
    line.addEventListener("click", function () { open(position); });
    return line;
  }
  function draw() {
    var first = Math.max(0, Math.floor(grid.scrollTop / ROW_HEIGHT) - SPARE);
    var last = Math.min(view.length, first + Math.ceil(grid.clientHeight / ROW_HEIGHT) + 2 * SPARE);
    Object.keys(drawn).forEach(function (key) {
      if (key < first || key >= last) { drawn[key].remove(); delete drawn[key]; }
    });
    for (var position = first; position < last; position++) {
      if (!drawn[position]) {
        drawn[position] = drawRow(position);
        body.append(drawn[position]);
      }
    }
  }
  function reveal(position) {
    var top = position * ROW_HEIGHT, height = grid.clientHeight - 36;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top + ROW_HEIGHT > grid.scrollTop + height) grid.scrollTop = top + ROW_HEIGHT - height;
  }

  // ---- one row in full ---------------------------------------------------------------------

  var detail = byId("detail");
  var at = -1;

  function open(position) {
    if (position < 0 || position >= view.length) return;
    at = position;
    picked = view[position];
    Object.keys(drawn).forEach(function (key) {
      drawn[key].classList.toggle("picked", view[key] === picked);
    });
    reveal(position);
    detail.hidden = false;
    detail.scrollTop = 0;
    detail.textContent = "";
    detail.append(detailHead());
    note(encodeURIComponent(data.rows[picked][LABEL]));
    var found = payload(picked);
    if (!found) {
      detail.append(make("p", "note block", "This row is still being read; open it again in a moment."));
    } else if (comparing) {
      comparisonDetail(found);
    } else {
      resultDetail(found);
    }
  }
  function note(hash) {
    try { history.replaceState(null, "", "#" + hash); } catch (error) { /* not from every origin */ }
  }
  function openNamed() {
    var name;
    try { name = decodeURIComponent(location.hash.slice(1)); } catch (error) { return; }
    if (!name) return;
    var position = view.findIndex(function (place) { return data.rows[place][LABEL] === name; });
    if (position >= 0) open(position);
  }
  function close() {
    detail.hidden = true;
    note("");
    grid.focus();
  }
  function button(text, title, act) {
    var made = make("button", "ghost", text);
    made.type = "button";
    made.title = title;
    made.setAttribute("aria-label", title);
    made.addEventListener("click", act);
    return made;
  }
  function detailHead() {
    var row = data.rows[picked];
    var line = make("div", "detail-head");
    line.append(make("h2", "", row[LABEL] + (data.repeats ? " \u00b7 repeat " + row[REPEAT] : "")));
    row[CELLS].forEach(function (cell) {
      line.append(make("span", "pill " + (cell ? cell[STATUS] : "absent"), statusText(cell)));
    });
    line.append(button("\u2191", "Previous row", function () { open(at - 1); }));
    line.append(button("\u2193", "Next row", function () { open(at + 1); }));
    line.append(button("\u2715", "Close", close));
    return line;
  }
  function chips(pairs) {
    var line = make("div", "chips");
    pairs.forEach(function (pair) {
      if (pair[1] === "" || pair[1] === undefined || pair[1] === null) return;
      var chip = make("span", "", pair[0]);
      chip.append(make("b", "", pair[1]));
      line.append(chip);
    });
    return line;
  }
  function block(title, value, kind) {
    var text = shown(value);
    if (!text) return;
    var holder = make("div", "block"), line = make("div", "block-head");
    line.append(make("h3", "", title));
    var copy = make("button", "copy", "copy");
    copy.type = "button";
    copy.addEventListener("click", function () {
      navigator.clipboard.writeText(text).then(function () { copy.textContent = "copied"; });
    });
    if (navigator.clipboard) line.append(copy);
    holder.append(line, make("pre", kind || "", text));
    detail.append(holder);
  }
  function cellChips(cell, answer) {
    var pairs = [["latency", time(cell[LATENCY])], ["first token", time(cell[TTFT])],
      ["tokens", count(cell[TOKENS])], ["trace", answer.trace], ["folder", answer.folder]];
    return chips(pairs);
  }
  function scores(answer) {
    var found = answer.scores || {};
    var line = make("div", "chips");
    Object.keys(found).forEach(function (name) {
      var chip = make("span", "", name);
      chip.append(make("b", "", score(found[name].result)));
      if (found[name].message) chip.append(document.createTextNode(" " + found[name].message));
      line.append(chip);
    });
    return line;
  }
  function more(answer, whose) {
    block("Trajectory" + whose, answer.trajectory);
    block("Traceback" + whose, answer.traceback);
    block("Facts of the call" + whose, answer.meta);
  }
  function resultDetail(found) {
    var answer = found.runs[0], cell = data.rows[picked][CELLS][0];
    detail.append(cellChips(cell, answer), scores(answer));
    block("Error", answer.error, "error");
    block("Output", answer.output);
    block("Expected", found.truth);
    block("Input", found.input);
    more(answer, "");
  }

  var left = 0, right = 1;
  function comparisonDetail(found) {
    var cells = data.rows[picked][CELLS];
    data.runs.forEach(function (name, run) {
      var answer = found.runs[run];
      if (!answer || !cells[run]) return;
      var line = cellChips(cells[run], answer);
      line.prepend(make("b", "", name));
      scores(answer).childNodes.forEach(function (chip) { line.append(chip.cloneNode(true)); });
      detail.append(line);
    });
    detail.append(diffBlock(found));
    block("Expected", found.truth);
    block("Input", found.input);
    found.runs.forEach(function (answer, run) {
      if (answer) more(answer, " \u00b7 " + data.runs[run]);
    });
  }
  function diffBlock(found) {
    var holder = make("div", "block"), line = make("div", "block-head");
    line.append(make("h3", "", "Outputs"));
    var place = make("div");
    var redraw = function () { place.textContent = ""; place.append(diff(found)); };
    if (data.runs.length > 2) line.append(pickers(redraw));
    holder.append(line, place);
    redraw();
    return holder;
  }
  function pickers(redraw) {
    var holder = make("span", "pickers");
    [0, 1].forEach(function (side) {
      var select = make("select");
      data.runs.forEach(function (name, run) {
        var option = make("option", "", name);
        option.value = run;
        option.selected = run === (side ? right : left);
        select.append(option);
      });
      select.addEventListener("change", function () {
        if (side) right = Number(select.value); else left = Number(select.value);
        redraw();
      });
      holder.append(select);
    });
    return holder;
  }
  function answerText(answer) {
    return answer.error ? "ERROR " + answer.error : shown(answer.output);
  }
  function diff(found) {
    var table = make("div", "diff");
    table.append(make("div", "name", data.runs[left]), make("div", "name", data.runs[right]));
    var sides = [found.runs[left], found.runs[right]];
    if (!sides[0] || !sides[1]) {
      sides.forEach(function (answer) {
        table.append(answer ? make("div", "", answerText(answer)) : make("div", "gap", "no answer here"));
      });
      return table;
    }
    var old = answerText(sides[0]).split("\n"), fresh = answerText(sides[1]).split("\n");
    pairLines(align(old, fresh)).forEach(function (pair) {
      table.append(diffLine(pair[0], pair[1], "gone"), diffLine(pair[1], pair[0], "came"));
    });
    return table;
  }
  function diffLine(line, other, kind) {
    if (line === null) return make("div", "gap");
    if (line === other) return make("div", "", line);
    var node = make("div", kind);
    if (other === null) {
      node.textContent = line;
      return node;
    }
    align(words(other), words(line)).forEach(function (step) {
      if (step.same) node.append(document.createTextNode(step.fresh));
      else if (step.fresh !== null) node.append(make("mark", "", step.fresh));
    });
    return node;
  }
  function words(text) {
    return text.match(/[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|[\p{L}\p{N}_]+|\s+|./gu) || [];
  }
  // Removed and added lines that follow each other are shown beside each other.
  function pairLines(steps) {
    var pairs = [], gone = [], came = [];
    function flush() {
      for (var place = 0; place < Math.max(gone.length, came.length); place++) {
        pairs.push([place < gone.length ? gone[place] : null, place < came.length ? came[place] : null]);
      }
      gone = [];
      came = [];
    }
    steps.forEach(function (step) {
      if (step.same) { flush(); pairs.push([step.old, step.fresh]); return; }
      if (step.old !== null) gone.push(step.old);
      if (step.fresh !== null) came.push(step.fresh);
    });
    flush();
    return pairs;
  }
  // The longest common subsequence of what is left between common ends; beyond four million
  // comparisons the middle counts as replaced, so that opening a row never hangs.
  function align(old, fresh) {
    var start = 0, end = 0, steps = [], tail = [];
    while (start < old.length && start < fresh.length && old[start] === fresh[start]) {
      steps.push({ same: true, old: old[start], fresh: fresh[start] });
      start++;
    }
    while (end < old.length - start && end < fresh.length - start &&
        old[old.length - 1 - end] === fresh[fresh.length - 1 - end]) {
      tail.unshift({ same: true, old: old[old.length - 1 - end], fresh: fresh[fresh.length - 1 - end] });
      end++;
    }
    var a = old.slice(start, old.length - end), b = fresh.slice(start, fresh.length - end);
    return steps.concat(a.length * b.length > 4e6 ? replaced(a, b) : common(a, b), tail);
  }
  function replaced(a, b) {
    return a.map(function (one) { return { same: false, old: one, fresh: null }; }).concat(
      b.map(function (one) { return { same: false, old: null, fresh: one }; }));
  }
  function common(a, b) {
    var width = b.length + 1, lengths = new Uint32Array((a.length + 1) * width);
    for (var i = a.length - 1; i >= 0; i--) {
      for (var j = b.length - 1; j >= 0; j--) {
        lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1] + 1 :
          Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
      }
    }
    var steps = [], x = 0, y = 0;
    while (x < a.length || y < b.length) {
      if (x < a.length && y < b.length && a[x] === b[y]) {
        steps.push({ same: true, old: a[x++], fresh: b[y++] });
      } else if (y >= b.length || (x < a.length && lengths[(x + 1) * width + y] >= lengths[x * width + y + 1])) {
        steps.push({ same: false, old: a[x++], fresh: null });
      } else {
        steps.push({ same: false, old: null, fresh: b[y++] });
      }
    }
    return steps;
  }

  // ---- wiring ------------------------------------------------------------------------------

  var pending = null;
  grid.addEventListener("scroll", function () {
    if (pending === null) pending = requestAnimationFrame(function () { pending = null; draw(); });
  });
  window.addEventListener("resize", draw);
  var typing = null;
  byId("search").addEventListener("input", function (event) {
    clearTimeout(typing);
    typing = setTimeout(function () {
      needle = event.target.value.trim().toLowerCase();
      grid.scrollTop = 0;
      refresh();
      if (needle && reading === null && document.readyState !== "loading") readTexts(0);
    }, 120);
  });
  document.addEventListener("keydown", function (event) {
    if (event.target.matches("input, select")) return;
    var moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };
    if (event.key === "Escape" && !detail.hidden) close();
    else if (event.key === "/") { event.preventDefault(); byId("search").focus(); }
    else if (event.key === "Enter" && event.target === grid) open(Math.max(at, 0));
    else if (moves[event.key] && (!detail.hidden || event.target === grid)) {
      event.preventDefault();
      open(Math.min(view.length - 1, Math.max(0, at + moves[event.key])));
    }
  });

  drawFilters();
  drawHead();
  refresh();
  window.addEventListener("hashchange", openNamed);
  document.addEventListener("DOMContentLoaded", function () {
    root.dataset.ready = "yes";
    openNamed();
  });
})();
