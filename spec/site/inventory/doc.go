// SPDX-License-Identifier: Apache-2.0

// Package inventory holds the machines of a fleet: their names, their labels, and
// by what a machine may claim to be one of them.
//
// They are written in a site, in a file of their own, or come as the JSON of
// kubectl get nodes. Names and identifiers are unique, or two machines would be
// given one overlay. What a node runs is not here.
package inventory
