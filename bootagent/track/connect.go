// SPDX-License-Identifier: Apache-2.0

package track

import (
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// Files in the directory of credentials, each optional, readable by root only. They
// are put there by whoever installs the node; nothing that is fetched is.
const (
	authFile   = "auth.json"  // in the form of docker's config.json
	clientCert = "client.crt" // for mTLS
	clientKey  = "client.key"
)

// Open reaches the registry and the mirrors of a bootstrap, with the credentials
// in a directory that need not exist, and with the node's clock for certificates.
// silence is how long a server may say nothing.
func Open(b spec.Bootstrap, credentials string, clock trust.Clock, silence time.Duration) (oci.Source, error) {
	ref, err := oci.ParseRef(b.Registry)
	if err != nil {
		return nil, err
	}
	there := func(name string) string {
		name = filepath.Join(credentials, name)
		if _, err := os.Lstat(name); credentials == "" || err != nil {
			return ""
		}
		return name
	}
	now, sure := clock.Ticking()
	return pull.Open(ref, pull.Options{
		PlainHTTP: b.PlainHTTP, CAs: b.CAs, Mirrors: b.Mirrors, Proxy: b.Proxy,
		AuthFile: there(authFile), CertFile: there(clientCert), KeyFile: there(clientKey),
		Timeout: silence, UserAgent: "caisson-agent", Now: now, AtLeast: !sure,
	})
}
