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

// Way is how a registry is reached. The zero value has no credentials.
type Way struct {
	Credentials string        // directory, which need not exist
	Clock       trust.Clock   // for certificates
	Silence     time.Duration // how long a server may say nothing; 0 is 30 s
	Agent       string        // what is said to servers about the program that asks, see [UserAgent]
	Dial        pull.Dial     `json:"-"` // connects; nil is the machine's own way, which is that of another process, too
}

// UserAgent says which program asks, and for which node or, as long as that is not
// known, for which machine: so a server's log can be read. It is nobody's promise.
func UserAgent(version string, id trust.Identity) string {
	as := ""
	switch {
	case oci.ValidTag(id.Node):
		as = " (node " + id.Node + ")"
	case len(id.MACs) > 0:
		as = " (mac " + id.MACs[0] + ")"
	}
	if !oci.ValidTag(version) { // a header has one line
		version = "unknown"
	}
	return "caisson-agent/" + version + as
}

// Open reaches the registry and the mirrors of a bootstrap.
func Open(b spec.Bootstrap, way Way) (oci.Source, error) {
	ref, err := oci.ParseRef(b.Registry)
	if err != nil {
		return nil, err
	}
	return pull.Open(ref, Options(b, way, authFile))
}

// Options say how the registry of a bootstrap is reached with the credentials of a file
// in the way's directory.
func Options(b spec.Bootstrap, way Way, auth string) pull.Options {
	there := func(name string) string {
		name = filepath.Join(way.Credentials, name)
		if _, err := os.Lstat(name); way.Credentials == "" || err != nil {
			return ""
		}
		return name
	}
	now, sure := way.Clock.Ticking()
	return pull.Options{
		PlainHTTP: b.PlainHTTP, CAs: b.CAs, Mirrors: b.Mirrors, Proxy: b.Proxy,
		AuthFile: there(auth), CertFile: there(clientCert), KeyFile: there(clientKey),
		Timeout: way.Silence, UserAgent: way.Agent, Dial: way.Dial, Now: now, AtLeast: !sure,
	}
}
