// SPDX-License-Identifier: Apache-2.0

package sites_test

import (
	"context"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/registrytest"
)

// registryOf names a place in a new registry on the loopback.
func registryOf(t *testing.T) string { return registrytest.WithReferrers(t) + "/fleet" }

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(context.WithoutCancel(t.Context()))
}

// eventually does something until it succeeds.
func eventually(t *testing.T, do func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = do(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
