// SPDX-License-Identifier: Apache-2.0

// Package credential validates password hashes, as in crypt(5), and SSH keys, as
// lines of authorized_keys in sshd(8).
//
// Both are parsed to the end, not matched at the beginning: a hash that lost its
// last character or a key that was pasted in half locks a user out, and that
// is better said before a layer is built. Nothing is verified against a password
// and no private key is read.
package credential
