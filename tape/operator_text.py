"""What the operators of tensors are printed from: the common cases in a few attribute loads and one extend.

``heard`` is the recorder in force, which is told of what has been done.
"""

BINARY = """
def {name}(a, b):
    kind = type(b)
    tape = active()
    heard = None
    if tape is None:
        heard, tape = listening()
        if heard is None:
            return slow(op, a, b)
    if kind is Tensor:
        s = a._slot
        t = b._slot
        x = a._value
        y = b._value
        scalar = type(x) is float and type(y) is float
        row = scalars if scalar else rows.get((a._form.spec, b._form.spec))
        if row is None:
            return slow(op, a, b)
        wanted = {differentiable}tape is not False and (s is not None or t is not None)
        if wanted:
            form = row.first if t is None else row.second if s is None else row.both
            if form is None:
                return slow(op, a, b)
        {value}
        result = new(Tensor)
        result._value = value
        if not wanted:
            result._slot = None
            result._form = row.spec
            if heard is not None:
                heard.note(op, (a, b), result, ())
            return result
        if t is None:
            tape.record(result, form.code, (s, None), ({first}))
        elif s is None:
            tape.record(result, form.code, (None, t), ({second}))
        else:
            tape.record(result, form.code, (s, t), ({both}))
        if heard is not None:
            heard.note(op, (a, b), result, ())
        return result
{numbers}    elif (kind is float or kind is int) and -LARGEST <= b <= LARGEST:
        s = a._slot
        x = a._value
        y = float(b)
        scalar = type(x) is float
        row = scalars_number if scalar else rows.get((a._form.spec, None))
        if row is None:
            return slow(op, a, b)
        wanted = {differentiable}tape is not False and s is not None
        if wanted and (form := row.first) is None:
            return slow(op, a, b)
        {value}
        result = new(Tensor)
        result._value = value
        if not wanted:
            result._slot = None
            result._form = row.spec
            if heard is not None:
                heard.note(op, (a, y), result, ())
            return result
        tape.record(result, form.code, (s, None), ({first}))
        if heard is not None:
            heard.note(op, (a, y), result, ())
        return result
    return slow(op, a, b)
"""

NUMBER = """    elif kind is int or kind is float:
        row = numbers.get((a._form.spec, b))
        if row is None:
            return slow(op, a, b)
        s = a._slot
        x = a._value
        value = row.compute(x)
        if row.post is not None:
            value = row.post(value)
        result = new(Tensor)
        result._value = value
        if tape is False or s is None:
            result._slot = None
            result._form = row.spec
            if heard is not None:
                heard.note(by_number, (a,), result, (float(b),))
            return result
        if (form := row.first) is None:
            return slow(op, a, b)
        tape.record(result, form.code, (s,), ({kept}))
        if heard is not None:
            heard.note(by_number, (a,), result, (float(b),))
        return result
"""

REVERSED = """
def {name}_reversed(b, a):
    kind = type(a)
    tape = active()
    heard = None
    if tape is None:
        heard, tape = listening()
        if heard is None:
            return slow(op, a, b)
    if (kind is float or kind is int) and -LARGEST <= a <= LARGEST:
        t = b._slot
        y = b._value
        x = float(a)
        scalar = type(y) is float
        row = number_scalars if scalar else rows.get((None, b._form.spec))
        if row is None:
            return slow(op, a, b)
        wanted = {differentiable}tape is not False and t is not None
        if wanted and (form := row.second) is None:
            return slow(op, a, b)
        {value}
        result = new(Tensor)
        result._value = value
        if not wanted:
            result._slot = None
            result._form = row.spec
            if heard is not None:
                heard.note(op, (x, b), result, ())
            return result
        tape.record(result, form.code, (None, t), ({second}))
        if heard is not None:
            heard.note(op, (x, b), result, ())
        return result
    return slow(op, a, b)
"""

UNARY = """
def {name}(a):
    tape = active()
    heard = None
    if tape is None:
        heard, tape = listening()
    if type(a) is not Tensor or tape is None:
        return slow(op, a)
    s = a._slot
    row = rows.get((a._form.spec,))
    if row is None:
        return slow(op, a)
    wanted = {differentiable}tape is not False and s is not None
    if wanted and (form := row.first) is None:
        return slow(op, a)
    x = a._value
    scalar = type(x) is float
    {value}
    result = new(Tensor)
    result._value = value
    if not wanted:
        result._slot = None
        result._form = row.spec
        if heard is not None:
            heard.note(op, (a,), result, ())
        return result
    tape.record(result, form.code, (s,), ({first}))
    if heard is not None:
        heard.note(op, (a,), result, ())
    return result
"""
