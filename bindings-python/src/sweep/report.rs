//! Reports of results that Python holds as JSON: pure functions.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidegate_sweep::outcome::{FORMAT, SweepOutcome};
use tidegate_sweep::report::{Figure, card, csv, figure, html};

/// The whole report, one HTML file.
#[pyfunction]
pub(crate) fn sweep_html(py: Python<'_>, result: &str) -> PyResult<String> {
    of(py, result, html)
}

/// The answer and its plot, as a piece of HTML.
#[pyfunction]
pub(crate) fn sweep_card(py: Python<'_>, result: &str) -> PyResult<String> {
    of(py, result, card)
}

/// The steps as CSV.
#[pyfunction]
pub(crate) fn sweep_csv(py: Python<'_>, result: &str) -> PyResult<String> {
    of(py, result, csv)
}

/// One figure, an SVG document.
#[pyfunction]
pub(crate) fn sweep_figure(py: Python<'_>, result: &str, name: &str) -> PyResult<String> {
    let which = Figure::ALL.into_iter().find(|figure| figure.name() == name).ok_or_else(|| {
        let names = Figure::ALL.map(Figure::name).join(", ");
        PyValueError::new_err(format!("no figure is called {name:?}; there are {names}"))
    })?;
    of(py, result, |outcome| figure(outcome, which))
}

fn of(py: Python<'_>, result: &str, make: impl FnOnce(&SweepOutcome) -> String + Send) -> PyResult<String> {
    let outcome: SweepOutcome = serde_json::from_str(result)
        .map_err(|e| PyValueError::new_err(format!("this is no result of a sweep: {e}")))?;
    if outcome.format != FORMAT {
        let said = format!("this result has format {}, and {FORMAT} is what is known here", outcome.format);
        return Err(PyValueError::new_err(said));
    }
    Ok(py.detach(|| make(&outcome)))
}
