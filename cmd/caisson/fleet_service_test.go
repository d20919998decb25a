// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// TestFleetScript runs the fleet's service with a certificate.
func TestFleetScript(t *testing.T) {
	require.Slow(t)
	t.Parallel()
	require.Tool(t, "curl")
	cert, key := registrytest.Certificate(t, t.TempDir())
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/fleet",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("CERT", cert)
			e.Setenv("CERTKEY", key)
			return nil
		},
	})
}
