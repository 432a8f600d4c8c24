//! Request bodies of the group protocols and of group tools.

use super::super::shape::{Field, Kind, Shape};
use super::{BOOLEAN, INT8, INT32, array, structure, text};
use crate::limits::REQUEST_ELEMENTS_MAX;

pub(super) static FIND_COORDINATOR: Shape = Shape {
    body: structure(&[
        text().until(3),             // key
        INT8.since(1),               // key type
        array(&Kind::Text).since(4), // keys
    ]),
    flexible_from: 3,
    elements_max: REQUEST_ELEMENTS_MAX,
};

pub(super) static JOIN_GROUP: Shape = Shape {
    body: structure(&[
        text(),                      // group id
        INT32,                       // session timeout
        INT32.since(1),              // rebalance timeout
        text(),                      // member id
        text().since(5).nullable(5), // group instance id
        text(),                      // protocol type
        array(&Kind::Nested(&structure(&[
            text(), // protocol
            BLOB,   // metadata
        ]))),
        text().since(8).nullable(8), // reason
    ]),
    flexible_from: 6,
    elements_max: REQUEST_ELEMENTS_MAX,
};

pub(super) static HEARTBEAT: Shape = Shape {
    body: structure(&[
        text(),                      // group id
        INT32,                       // generation
        text(),                      // member id
        text().since(3).nullable(3), // group instance id
    ]),
    flexible_from: 4,
    elements_max: 0,
};

pub(super) static LEAVE_GROUP: Shape = Shape {
    body: structure(&[
        text(),          // group id
        text().until(2), // member id
        array(&Kind::Nested(&structure(&[
            text(),                      // member id
            text().nullable(3),          // group instance id
            text().since(5).nullable(5), // reason
        ])))
        .since(3),
    ]),
    flexible_from: 4,
    elements_max: REQUEST_ELEMENTS_MAX,
};

pub(super) static SYNC_GROUP: Shape = Shape {
    body: structure(&[
        text(),                      // group id
        INT32,                       // generation
        text(),                      // member id
        text().since(3).nullable(3), // group instance id
        text().since(5).nullable(5), // protocol type
        text().since(5).nullable(5), // protocol
        array(&Kind::Nested(&structure(&[
            text(), // member id
            BLOB,   // assignment
        ]))),
    ]),
    flexible_from: 4,
    elements_max: REQUEST_ELEMENTS_MAX,
};

pub(super) static DESCRIBE_GROUPS: Shape = Shape {
    body: structure(&[
        array(&Kind::Text), // group ids
        BOOLEAN.since(3),   // whether authorized operations are wanted
    ]),
    flexible_from: 5,
    elements_max: REQUEST_ELEMENTS_MAX,
};

pub(super) static LIST_GROUPS: Shape = Shape {
    body: structure(&[
        array(&Kind::Text).since(4), // states
        array(&Kind::Text).since(5), // types
    ]),
    flexible_from: 3,
    elements_max: REQUEST_ELEMENTS_MAX,
};

pub(super) static DELETE_GROUPS: Shape = Shape {
    body: structure(&[
        array(&Kind::Text), // group ids
    ]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_MAX,
};

pub(super) static CONSUMER_GROUP_HEARTBEAT: Shape = Shape {
    body: structure(&[
        text(),                         // group id
        text(),                         // member id
        INT32,                          // member epoch
        text().nullable(0),             // instance id
        text().nullable(0),             // rack id
        INT32,                          // rebalance timeout
        array(&Kind::Text).nullable(0), // topic names
        text().since(1).nullable(1),    // topic regex
        text().nullable(0),             // assignor
        array(&Kind::Nested(&structure(&[
            UUID,                   // topic id
            array(&Kind::Fixed(4)), // partitions
        ])))
        .nullable(0),
    ]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_MAX,
};

pub(super) static CONSUMER_GROUP_DESCRIBE: Shape = Shape {
    body: structure(&[
        array(&Kind::Text), // group ids
        BOOLEAN,            // whether authorized operations are wanted
    ]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_MAX,
};

pub(super) static OFFSET_DELETE: Shape = Shape {
    body: structure(&[
        text(), // group id
        array(&Kind::Nested(&structure(&[
            text(), // topic name
            array(&Kind::Nested(&structure(&[
                INT32, // partition
            ]))),
        ]))),
    ]),
    flexible_from: 1,
    elements_max: REQUEST_ELEMENTS_MAX,
};

const UUID: Field = Field::fixed(16);
const BLOB: Field = Field::blob();
