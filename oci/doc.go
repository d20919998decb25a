// SPDX-License-Identifier: Apache-2.0

// Package oci reads caisson's artifacts from a registry or from an OCI layout,
// and writes their manifests as bytes.
//
// It is the small half of registry access, the one that the boot agent links:
// GET with conditions, ranges and resume, a cap on every size before reading,
// and strict parsing. It cannot push, see oci/registry for that, and it believes
// nothing: tags, annotations and media types are hints, what counts is the
// digest by which something was asked for. Whether a document may act is decided
// by bootagent/fetch, with the signatures of oci/sign.
//
// What lies is answered with an error from oci/refusal; what is absent with
// [ErrNotFound]; all else is a failure worth another try.
//
// It imports the standard library only. Anyone may import it, except layers and
// builder. The formats are the OCI image and distribution specifications 1.1.
package oci
