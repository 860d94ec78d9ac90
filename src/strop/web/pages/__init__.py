"""The pages by their addresses. Importing a module makes its pages known."""
