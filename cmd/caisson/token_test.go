// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/caisson-os/caisson/test/tokentest"
)

// TestTokenScript runs scripts beside a token that has a key for each role. In them,
// "$TOKEN LABEL" is the program that asks it.
func TestTokenScript(t *testing.T) {
	t.Parallel()
	environment := tokentest.New(t, "root", "root2", "operator", "release", "attestation", "epoch")
	program, err := filepath.Abs("../../examples/signer/pkcs11")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/token",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("TOKEN", program)
			for name, value := range environment {
				e.Setenv(name, value)
			}
			return nil
		},
	})
}
