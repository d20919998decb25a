// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The command line's behaviour is written down in testdata/script: one file a
// verb and a case, run in this process. CAISSON_UPDATE=1 rewrites the
// files that are compared.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"caisson": func() { os.Exit(run()) },
		"hsm":     hsm, // holds a key for caisson, see signer_test.go
	})
}

func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       os.Getenv("CAISSON_UPDATE") != "",
		RequireExplicitExec: true,
	})
}
