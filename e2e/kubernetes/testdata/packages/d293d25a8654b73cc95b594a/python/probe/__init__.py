name = "a package of PyPI"
