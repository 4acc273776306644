//! The parameters of a statement.

use wire::data::{Value, ValueRef};

/// A value for a parameter.
pub trait Parameter {
    /// The value.
    fn value(&self) -> ValueRef<'_>;
}

/// The values for all parameters of a statement, in the order of its `-- params:`: a tuple, such as `(7, "a name")`, or
/// a slice.
pub trait Parameters {
    /// Writes all of them.
    fn put(&self, out: &mut Vec<u8>);
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Parameter for $integer {
            fn value(&self) -> ValueRef<'_> {
                ValueRef::Int((*self).into())
            }
        }
    )*};
}
integers!(i8 i16 i32 i64 u8 u16 u32 bool);

impl Parameter for f64 {
    fn value(&self) -> ValueRef<'_> {
        ValueRef::Real(*self)
    }
}

impl Parameter for str {
    fn value(&self) -> ValueRef<'_> {
        ValueRef::Text(self)
    }
}

impl Parameter for String {
    fn value(&self) -> ValueRef<'_> {
        ValueRef::Text(self)
    }
}

impl Parameter for [u8] {
    fn value(&self) -> ValueRef<'_> {
        ValueRef::Blob(self)
    }
}

impl Parameter for Vec<u8> {
    fn value(&self) -> ValueRef<'_> {
        ValueRef::Blob(self)
    }
}

impl<T: Parameter> Parameter for Option<T> {
    fn value(&self) -> ValueRef<'_> {
        self.as_ref().map_or(ValueRef::Null, Parameter::value)
    }
}

impl<T: Parameter + ?Sized> Parameter for &T {
    fn value(&self) -> ValueRef<'_> {
        (**self).value()
    }
}

impl Parameter for Value {
    fn value(&self) -> ValueRef<'_> {
        self.borrowed()
    }
}

impl<T: Parameter> Parameters for &[T] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|parameter| parameter.value().put(out));
    }
}

impl Parameters for () {
    fn put(&self, _: &mut Vec<u8>) {}
}

macro_rules! tuples {
    ($($name:ident)*) => {
        tuples!(@ [] $($name)*);
    };
    (@ [$($done:ident)*] $next:ident $($rest:ident)*) => {
        impl<$($done: Parameter,)* $next: Parameter> Parameters for ($($done,)* $next,) {
            #[allow(non_snake_case, reason = "one name for a type and its value")]
            fn put(&self, out: &mut Vec<u8>) {
                let ($($done,)* $next,) = self;
                $($done.value().put(out);)*
                $next.value().put(out);
            }
        }
        tuples!(@ [$($done)* $next] $($rest)*);
    };
    (@ [$($done:ident)*]) => {};
}
tuples!(A B C D E F G H I J K L M N O P);
