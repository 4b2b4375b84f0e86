"""An MLflow database, created once, because that takes as long as the rest of a test."""

import shutil
import warnings
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def _empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        database = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
        MlflowClient(f"sqlite:///{database}").search_experiments()
    return database


@pytest.fixture
def _mlflow_database(_empty_database: Path, tmp_path: Path) -> None:
    place = tmp_path / "session" / "mlflow"
    place.mkdir(parents=True)
    shutil.copy(_empty_database, place)
