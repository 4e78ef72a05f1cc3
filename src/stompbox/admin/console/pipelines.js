// Pipelines: what they have told of their steps.

import { drawn, make, mark } from "./elements.js";
import { ago, count, rate, tenth } from "./figures.js";
import { Listed, part } from "./tables.js";
export function pipelines() {
  return new Listed("Pipelines", "pipelines", Object.values(pipelineColumns()), stepKey, {
    filter: "Filter by pipeline, step or user", sort: "pipeline", empty: NO_PIPELINE,
  });
}

export const NO_PIPELINE = "No pipeline has told of itself. stompbox pipeline run FILE does, for as long as it runs.";
export const stepKey = (row) => `${row.user}/${row.pipeline}/${row.step}`;

export function pipelineColumns() {
  return {
    pipeline: { title: "Pipeline", sort: "pipeline", kind: "name", text: (row) => row.pipeline },
    step: { title: "Step", sort: "step", kind: "name", draw: (cell, row) => drawn(cell, [row.step, row.kind, row.reason], () => [
      row.step, make("span", { class: "note" }, row.kind), row.reason ? make("span", { class: "note bad" }, row.reason) : ""]) },
    state: { title: "State", sort: "state", draw: (cell, row) => drawn(cell, row.state, () => [mark(row.state)]) },
    rows: { title: "Rows", sort: "rows", kind: "number", draw: (cell, row) => part(cell, count(row.rows) + (row.of ? ` of ${count(row.of)}` : ""), row.rows, row.of) },
    rate: { title: "Rows/s", sort: "rate", kind: "number", text: (row) => rate(row.rate) },
    lag: { title: "Waiting", sort: "lag_messages", kind: "number", text: (row) => (row.lag_messages === null ? "–" : count(row.lag_messages)) },
    batch: { title: "Last batch", kind: "number", text: (row) => (row.batch_at === null ? "–" : `${ago(row.batch_at, row.now)}, took ${tenth.format(row.batch_seconds)} s`) },
    told: { title: "Told", sort: "told", kind: "number", text: (row) => ago(row.told, row.now) },
    user: { title: "User", text: (row) => row.user || "–" },
  };
}
