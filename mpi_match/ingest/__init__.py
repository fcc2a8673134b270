"""Reading rows and columns: values of the model, or a reject with its reason."""
