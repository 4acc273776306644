//go:build tools

// Package tools pins h2spec and what it is built from, in versions that Go 1.19 (Debian 12) can build.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
