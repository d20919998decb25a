// SPDX-License-Identifier: Apache-2.0

// Package sign makes and checks the signatures of caisson: ECDSA P-256 over
// in-toto statements, as sigstore bundles v0.3 that cosign v2.6 and v3 verify.
//
// Statements differ by their predicate type: what a node is to be
// ([SignOverlay]), what holds for a fleet ([SignFleet], [SignEpoch]) and which keys
// count in it ([SignKeys]), that an artifact was released ([SignArtifact], cosign's
// own form), and what is attested of it ([Attest]). A key has one role:
// cosign takes any attestation by a key for its signature, so keys that attest
// never release, and keys that release never command nodes.
//
// A public key is a [Verifier]; its algorithm is known in this package only. Private
// keys in files are read by oci/keys. There is no certificate authority, no
// transparency log and no network here. The package decides whether bytes were
// signed by enough trusted keys and for which purpose; whether a node obeys them is
// decided by package trust.
//
// Formats: DSSE v1, in-toto statement v1, sigstore bundle v0.3. See
// docs/transport.md.
package sign
