// SPDX-License-Identifier: Apache-2.0

// Package rules says what a valid value is: one parser, one wording and one wire
// form for modes, names, paths, limits, mounts, kernel parameters and scripts.
//
// A site checks with it what an author wrote, the builder and the node check with
// it what they were given, so that "valid" means the same to all three. It does
// not say what is wise (spec/site warns of that) nor what a machine has: a user,
// a device or a program that is missing is found where it is needed. A rule may
// be relaxed; one that is tightened makes nodes refuse overlays that are signed
// already.
//
// The package is pure: it imports spec and the standard library, reads no file
// and asks no system. Everything above spec may import it.
package rules
