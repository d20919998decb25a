// SPDX-License-Identifier: Apache-2.0

// Package oci reads caisson's artifacts from a registry or from an OCI layout,
// and encodes their manifests.
//
// It is the small half of registry access, the one that the agent links: GET with
// conditions, ranges and resume, caps that are counted while reading, least rates,
// and strict parsing. It cannot push; oci/registry does. It trusts nothing: tags,
// annotations and media types are hints, what counts is the digest by which
// something was asked for. Whether a document may act is decided by package trust,
// with the signatures of oci/sign.
//
// Content that is not what it should be is an error of trust/refusal, absent
// content is [ErrNotFound], slow content is [ErrSlow]; any other error is one of the
// transport: retry. Several places are asked by [InOrder] or [Anywhere], so that one
// that serves rubbish does not hide the next.
//
// It imports the standard library, trust/refusal and small packages of internal.
// layers and builder do not import it. The formats are the OCI image and
// distribution specifications 1.1.
package oci
