// SPDX-License-Identifier: Apache-2.0

// Package vm boots nodes that are Nodes of a cluster, as virtual machines: its tests give
// examples/kubernetes to the machines of caisson's own test/vm, and a real API server to
// their kubelets. It has no code but tests, and nobody imports it.
//
// They take minutes each:
//
//	make test-kube-long
package vm
