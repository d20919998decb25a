// SPDX-License-Identifier: Apache-2.0

// Package cluster spells a site as objects of Kubernetes. What stands in files may stand
// in objects of the same kinds, field by field, in one namespace.
//
// [Definitions] makes the CustomResourceDefinitions from the documents' own shapes.
// [Reader.Parse] reads objects as it would files: each is a file beside the keys, so package site
// decides alone what they mean. Two things differ. Whatever reads or runs something where
// it is published is refused in an object, see [Refused]: who may write objects must not
// read the publisher's files. And JSON has numbers and booleans where YAML as caisson
// reads it has text: [Check] finds what kubectl would send as another value.
//
// It knows no API server: objects are plain data. The command line and caisson-kube
// import it.
package cluster
