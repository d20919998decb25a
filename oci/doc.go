// SPDX-License-Identifier: Apache-2.0

// Package oci reads and encodes caisson's artifacts: descriptors, manifests,
// indexes, and the signed documents that manifests hold.
//
// It knows what an artifact is, not how it travels: artifacts come from a [Source],
// which oci/pull opens, and go out through oci/registry. Parsing is strict, and what
// is read is capped. The package trusts nothing: tags, annotations and media types
// are hints, what counts is the digest by which something was asked for. Whether a
// document may act is decided by package trust, with the signatures of oci/sign.
//
// Content that is not what it should be is an error of spec/refusal, absent content
// is [ErrNotFound]; any other error is one of the source: retry. Several places are
// asked by [InOrder] or [Anywhere], so that one that serves rubbish does not hide
// the next.
//
// It imports the standard library, spec/refusal and small packages of internal.
// layers and builder do not import it. The formats are the OCI image and
// distribution specifications 1.1.
package oci
