// SPDX-License-Identifier: Apache-2.0

// Package report tells a fleet what a node is: it signs reports with the node's own
// key, sends them when something has changed and else at intervals, and keeps what
// could not be sent until somebody answers.
//
// It decides neither what is true (package look) nor how a request is made (package
// fetch). Nothing that comes of a report is obeyed: an answer is "taken" or "not
// taken". The key signs reports and no more; package oci/sign holds their type apart
// from all that nodes obey. bootagent/node and
// cmd/caisson-agent import it.
package report
