// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/internal/httpserver"
)

// limitFlags bound what clients may take of a server.
func limitFlags(f *pflag.FlagSet, o *httpserver.Options) {
	f.IntVar(&o.Conns, "connections", 0, fmt.Sprintf("`N` connections at once; 0 is %d, or what 'ulimit -n' leaves. At the limit the one that waits longest for a request ends", httpserver.UsualConns))
	f.IntVar(&o.PerClient, "connections-per-address", 0, fmt.Sprintf("of these `N` from one address; 0 is %d", httpserver.UsualPerClient))
	f.DurationVar(&o.Idle, "idle", httpserver.UsualIdle, "how long a connection may wait for its next request")
}
