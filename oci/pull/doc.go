// SPDX-License-Identifier: Apache-2.0

// Package pull opens the places that hold artifacts, a registry or a directory in
// the OCI image layout, as an [oci.Source].
//
// It is the small half of registry access, the one that the agent links: GET with
// conditions, ranges and resume, caps that are counted while reading, least rates,
// mirrors, and credentials that reach no other host. It cannot push: oci/registry
// does, through the same [Options]. What the bytes mean is for package oci and its
// callers.
//
// An answer that is not what was asked for is an error of spec/refusal, slow
// content is [ErrSlow]; any other error is one of the transport: retry.
//
// It imports the standard library, oci, spec/refusal and small packages of
// internal.
package pull
