// SPDX-License-Identifier: Apache-2.0

// Package errors drops errors, for the test of packaging/hack/errcheck.
package errors

import "os"

func drop() string {
	os.Remove("without a word")
	_ = os.Remove("without a reason")
	name, _ := os.Getwd()
	_ = os.Remove("with a reason") // it is a copy
	name, _ = os.Getwd()           // only shown
	defer os.Remove(name)          // it is a copy
	return name
}

var _ = drop
