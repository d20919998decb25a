// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/insomniacslk/dhcp/iana"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/require"
)

const samples = "../../examples/dhcp/"

// servers are the samples and how each is started in the foreground.
var servers = map[string]func(t *testing.T) []string{
	"dnsmasq": func(t *testing.T) []string {
		return []string{"dnsmasq", "--keep-in-foreground", "--user=root", "--conf-file=" + sample(t, "dnsmasq.conf"), "--dhcp-leasefile=" + filepath.Join(t.TempDir(), "leases"), "--pid-file=" + filepath.Join(t.TempDir(), "pid")}
	},
	"kea-dhcp4": func(t *testing.T) []string {
		return []string{"kea-dhcp4", "-c", sample(t, "kea-dhcp4.conf")}
	},
	"dhcpd": func(t *testing.T) []string {
		leases := filepath.Join(t.TempDir(), "leases")
		if err := os.WriteFile(leases, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return []string{"dhcpd", "-f", "-4", "--no-pid", "-user", "root", "-group", "root", "-cf", sample(t, "dhcpd.conf"), "-lf", leases, "eth0"}
	},
}

// machines are those that boot, and what each has to be told.
var machines = []struct {
	name   string
	arch   iana.Arch
	ipxe   bool
	file   string
	server bool // by TFTP, so from the next server
}{
	{"BIOS", iana.INTEL_X86PC, false, "undionly.kpxe", true},
	{"UEFI", iana.EFI_X86_64, false, "ipxe.efi", true},
	{"UEFI, the other number", iana.EFI_BC, false, "ipxe.efi", true},
	{"UEFI over HTTP", iana.EFI_X86_64_HTTP, false, "http://192.0.2.1:8080/ipxe.efi", false},
	{"UEFI of arm64", iana.EFI_ARM64, false, "arm64.efi", true},
	{"UEFI of arm64 over HTTP", iana.EFI_ARM64_HTTP, false, "http://192.0.2.1:8080/arm64.efi", false},
	{"iPXE of a BIOS", iana.INTEL_X86PC, true, "http://192.0.2.1:8080/boot.ipxe", false},
	{"iPXE of UEFI", iana.EFI_X86_64, true, "http://192.0.2.1:8080/boot.ipxe", false},
}

func TestSamples(t *testing.T) {
	require.Root(t)
	require.Tool(t, "ip", "dnsmasq", "kea-dhcp4", "dhcpd")
	for name, command := range servers {
		t.Run(name, func(t *testing.T) {
			server, client := wire(t)
			start(t, server, command(t))
			c := dial(t, client)
			for _, m := range machines {
				t.Run(m.name, func(t *testing.T) {
					offer := ask(t, c, m.arch, m.ipxe)
					file := offer.BootFileName
					if o := offer.BootFileNameOption(); o != "" {
						file = o
					}
					if file = strings.TrimRight(file, "\x00"); file != m.file {
						t.Errorf("boot file %q, want %q", file, m.file)
					}
					next := offer.ServerIPAddr
					if m.server && !next.Equal(net.IPv4(192, 0, 2, 1)) {
						t.Errorf("next server %s, want 192.0.2.1", next)
					}
					if strings.HasPrefix(m.file, "http") && !m.ipxe && offer.ClassIdentifier() != "HTTPClient" {
						t.Errorf("class %q: firmware that boots over HTTP takes only HTTPClient", offer.ClassIdentifier())
					}
				})
			}
		})
	}
}

func sample(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(samples + name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// wire makes two namespaces with a card eth0 each, joined, and returns their names.
func wire(t *testing.T) (server, client string) {
	t.Helper()
	server, client = fmt.Sprintf("dhcp-s%d", os.Getpid()), fmt.Sprintf("dhcp-c%d", os.Getpid())
	for _, ns := range []string{server, client} {
		run(t, "ip", "netns", "add", ns)
		t.Cleanup(func() {
			if out, err := exec.Command("ip", "netns", "del", ns).CombinedOutput(); err != nil {
				t.Errorf("ip netns del %s: %v: %s", ns, err, out)
			}
		})
	}
	run(t, "ip", "-n", server, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", client)
	run(t, "ip", "-n", server, "addr", "add", "192.0.2.1/24", "dev", "eth0")
	for _, ns := range []string{server, client} {
		run(t, "ip", "-n", ns, "link", "set", "lo", "up")
		run(t, "ip", "-n", ns, "link", "set", "eth0", "up")
	}
	return server, client
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// start runs a server in a namespace until the test ends.
func start(t *testing.T, ns string, command []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", ns}, command...)...)
	cmd.Env = append(os.Environ(), "KEA_PIDFILE_DIR="+t.TempDir(), "KEA_LOCKFILE_DIR="+t.TempDir())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it ends by our signal
		if t.Failed() {
			t.Logf("%s:\n%s", command[0], out.String())
		}
	})
}

// dial opens a DHCP client on eth0 of a namespace. The thread that did so is not
// given back: it stays in there.
func dial(t *testing.T, ns string) *nclient4.Client {
	t.Helper()
	type result struct {
		c   *nclient4.Client
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		f, err := os.Open("/run/netns/" + ns)
		if err == nil {
			defer f.Close() // for setns only
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		var c *nclient4.Client
		if err == nil {
			c, err = nclient4.New("eth0", nclient4.WithTimeout(time.Second), nclient4.WithRetry(15))
		}
		done <- result{c, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { _ = r.c.Close() }) // the namespace goes with it
	return r.c
}

// ask sends what a machine of that kind broadcasts first and returns the offer.
func ask(t *testing.T, c *nclient4.Client, arch iana.Arch, ipxe bool) *dhcpv4.DHCPv4 {
	t.Helper()
	class := fmt.Sprintf("PXEClient:Arch:%05d:UNDI:003016", arch)
	if arch == iana.EFI_X86_64_HTTP {
		class = fmt.Sprintf("HTTPClient:Arch:%05d:UNDI:003016", arch)
	}
	mods := []dhcpv4.Modifier{
		dhcpv4.WithOption(dhcpv4.OptClientArch(arch)),
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier(class)),
		dhcpv4.WithBroadcast(true),
		dhcpv4.WithRequestedOptions(dhcpv4.OptionBootfileName, dhcpv4.OptionTFTPServerName, dhcpv4.OptionClassIdentifier),
	}
	if ipxe {
		mods = append(mods, dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionUserClassInformation, []byte("iPXE"))))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	offer, err := c.DiscoverOffer(ctx, mods...)
	if err != nil {
		t.Fatal(err)
	}
	return offer
}
