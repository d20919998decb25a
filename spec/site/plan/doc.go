// SPDX-License-Identifier: Apache-2.0

// Package plan says what publishing a site would change, node by node: what is
// added, changed and removed, which layers have to be built, and how much each
// node is disturbed by it, from none to a cold reboot.
//
// A [Planner] compares a site with what is published, one node at a time and in
// any order, so that memory stays bounded for any fleet. It fetches nothing: the
// command line gives it overlays, or only their digests, which settle most of a
// fleet. What a change costs is the table in package spec.
package plan
