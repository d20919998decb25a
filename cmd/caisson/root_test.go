// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/caisson-os/caisson/test/require"
)

// The verbs that need root and the builder's tools have scripts of their own, so
// that a machine without them says so instead of passing.
func TestRootScript(t *testing.T) {
	require.Root(t)
	require.Net(t)
	require.Tool(t, "mmdebstrap", "mksquashfs", "xz", "apt-get")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/root",
		UpdateScripts:       os.Getenv("CAISSON_UPDATE") != "",
		RequireExplicitExec: true,
	})
}
