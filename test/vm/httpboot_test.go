// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongUEFIHTTP has the firmware of a machine with UEFI fetch the loader by HTTP, from
// the address that DHCP gives to who asks as HTTPClient (UEFI, "HTTP Boot").
func TestLongUEFIHTTP(t *testing.T) {
	require.Long(t)
	f := fleet(t, withUEFI...)
	f.byHTTP(t, f.medium("http", "52:54:00:00:00:0a"))
}

// byHTTP is the way of one whose firmware starts from a web server.
func (f *Fleet) byHTTP(t *testing.T, o machine.Options, more ...string) *machine.Session {
	t.Helper()
	files := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(f.image(t, "boot.efi", more...)))))
	t.Cleanup(files.Close)
	o.Cables = startSwitch(t, 1, &netSwitch{http: "http://10.0.2.101/boot.efi"}).cables
	o.Forwards["10.0.2.101:80"] = strings.TrimPrefix(files.URL, "http://")
	m, s := f.arrives(t, o)
	if !strings.Contains(m.Console.String(), "http://10.0.2.101/boot.efi") {
		t.Error("the firmware does not say what it fetched")
	}
	return s
}

// TestLongUEFIHTTPS has the firmware fetch the loader by HTTPS from a server for which an authority
// vouches, and nothing from it where another one is what the firmware knows. OVMF of bookworm knows no
// elliptic curves.
func TestLongUEFIHTTPS(t *testing.T) {
	require.Long(t)
	f := fleet(t, withUEFI...)
	f.byHTTPS(t, f.medium("https", "52:54:00:00:00:0a"))
}

// byHTTPS is the way of one whose firmware starts from a web server for which its authority vouches.
func (f *Fleet) byHTTPS(t *testing.T, o machine.Options, more ...string) *machine.Session {
	t.Helper()
	key, authority := certified(t, nil, nil)
	leafKey, leaf := certified(t, key, authority)
	_, other := certified(t, nil, nil)
	files := httptest.NewUnstartedServer(http.FileServer(http.Dir(filepath.Dir(f.image(t, "boot.efi", more...)))))
	files.TLS = &tls.Config{CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256},
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: leafKey}}}
	files.StartTLS()
	defer files.Close()
	knowing := func(name string, c *x509.Certificate) machine.Options {
		t.Helper()
		list := filepath.Join(f.Dir, name+".esl")
		if err := os.WriteFile(list, efivar.Certificate(c), 0o600); err != nil {
			t.Fatal(err)
		}
		o := o
		o.Name, o.UEFI, o.Forwards = name, filepath.Join(f.Dir, name+".vars"), maps.Clone(o.Forwards)
		o.Cables = startSwitch(t, 1, &netSwitch{http: "https://10.0.2.101/boot.efi"}).cables
		o.Extra = []string{"-fw_cfg", "name=etc/edk2/https/cacerts,file=" + list}
		o.Forwards["10.0.2.101:443"] = strings.TrimPrefix(files.URL, "https://")
		return o
	}
	m := f.start(t, knowing("other", other))
	const refused = "Could not retrieve NBP file size from HTTP server"
	if waitFor(t, m, 0, refused, "Linux version") != refused {
		t.Error("by another authority the loader starts")
	}
	m.PowerCut()
	m, s := f.arrives(t, knowing("https", authority))
	if !strings.Contains(m.Console.String(), "https://10.0.2.101/boot.efi") {
		t.Error("the firmware does not say what it fetched")
	}
	return s
}

// certified makes a key of RSA and its certificate: that of an authority, or by one that of the server.
func certified(t *testing.T, by *rsa.PrivateKey, authority *x509.Certificate) (*rsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	is := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: by == nil, BasicConstraintsValid: true}
	if by == nil {
		by, authority = key, is
	} else {
		is.SerialNumber, is.Subject.CommonName, is.IPAddresses = big.NewInt(2), "10.0.2.101", []net.IP{net.IPv4(10, 0, 2, 101)}
	}
	der, err := x509.CreateCertificate(rand.Reader, is, authority, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, c
}

const asHTTP = "HTTPClient"

// hear remembers who asks for an address to boot by HTTP.
func (s *netSwitch) hear(frame []byte) {
	if m := dhcpIn(frame, 67); m != nil && strings.HasPrefix(m.ClassIdentifier(), asHTTP) {
		s.asked.Store(m.TransactionID, true)
	}
}

// offer adds the URL to an answer for one of those.
func (s *netSwitch) offer(frame []byte) []byte {
	m := dhcpIn(frame, 68)
	if m == nil || s.http == "" {
		return frame
	}
	if _, ok := s.asked.Load(m.TransactionID); !ok {
		return frame
	}
	m.UpdateOption(dhcpv4.OptClassIdentifier(asHTTP))
	m.UpdateOption(dhcpv4.OptBootFileName(s.http))
	m.BootFileName = ""
	return withPayload(frame, m.ToBytes())
}

// dhcpIn is the DHCPv4 message to a port in a frame, nil for anything else.
func dhcpIn(frame []byte, port uint16) *dhcpv4.DHCPv4 {
	at := payload(frame)
	if at == 0 || binary.BigEndian.Uint16(frame[at-6:]) != port {
		return nil
	}
	m, err := dhcpv4.FromBytes(frame[at:])
	if err != nil {
		return nil // something else
	}
	return m
}

// payload is where that of UDP over IPv4 begins, 0 for anything else.
func payload(frame []byte) int {
	if len(frame) < 42 || machine.TypeOf(frame) != machine.TypeIPv4 || frame[23] != 17 {
		return 0
	}
	at := 14 + int(frame[14]&15)*4 + 8
	if at > len(frame) {
		return 0
	}
	return at
}

// withPayload is a frame of UDP over IPv4 with another payload. UDP needs no checksum there.
func withPayload(frame, data []byte) []byte {
	at := payload(frame)
	out := append(bytes.Clone(frame[:at]), data...)
	ip, udp := out[14:at-8], out[at-8:at]
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(data)))
	binary.BigEndian.PutUint16(udp[6:], 0)
	binary.BigEndian.PutUint16(ip[2:], uint16(len(out)-14))
	binary.BigEndian.PutUint16(ip[10:], 0)
	binary.BigEndian.PutUint16(ip[10:], sum(ip))
	return out
}
