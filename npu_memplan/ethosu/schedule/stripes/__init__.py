"""Operations cut into stripes of rows, alone or several layers in turn, so that fewer bytes live together."""
