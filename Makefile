# make demo     train the example and compare it with its base
# make test     install everything and run all checks and tests
# make install  make the environment only

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := runs/demo-$(shell date +%Y%m%d-%H%M%S)
EXAMPLE := examples/json-extraction

.PHONY: install demo test check slow clean

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "strop needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check 'pip==26.3'
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[server]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[server,postgres,tensorboard,wandb,mlflow]' --group dev
	@touch $@

demo: install
	$(BIN)/strop train $(EXAMPLE)/config.toml --run-dir $(RUN)
	$(BIN)/strop eval $(RUN) --data $(EXAMPLE)/heldout.jsonl --rewards $(EXAMPLE)/config.toml \
		--against smollm2-135m --show 3
	@echo
	@echo "The run lies in $(RUN). Look at it, and talk with the model:"
	@echo "  $(BIN)/strop runs show $(RUN)"
	@echo "  $(BIN)/strop chat $(RUN)"
	@echo "  $(BIN)/strop export $(RUN) --merge my-model"
	@echo "Train on rows of your own: README.md, \"Your own run\"."

check: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check
	tests/services.sh
	$(BIN)/pytest -W error

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
