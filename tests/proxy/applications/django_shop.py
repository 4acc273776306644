"""A shop in Django, in one file: settings, pages, and `collectstatic` by running it; gunicorn takes `application`.

SHOP_FOLDER has `assets`, the application's static files, and gets `public/static`, the collected ones.
"""

import os
import sys
from pathlib import Path

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.middleware.csrf import get_token
from django.shortcuts import redirect
from django.urls import path

FOLDER = Path(os.environ["SHOP_FOLDER"])

settings.configure(
    SECRET_KEY="of a test",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["django.test"],
    # What the deployment checklist of Django asks for behind a proxy that ends TLS.
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware", "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware",
    ],
    INSTALLED_APPS=["django.contrib.staticfiles"],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    STATIC_URL="/static/",
    STATIC_ROOT=FOLDER / "public/static",
    STATICFILES_DIRS=[FOLDER / "assets"],
    DATA_UPLOAD_MAX_MEMORY_SIZE=None,
)


def home(request):
    request.session["visits"] = request.session.get("visits", 0) + 1
    return JsonResponse({
        "secure": request.is_secure(), "host": request.get_host(), "absolute": request.build_absolute_uri("/login/"),
        "forwarded": request.META.get("HTTP_X_FORWARDED_FOR"), "visits": request.session["visits"],
    })


def form(request):
    """Answers a form that has passed Django's check of the token, `Origin` and `Referer`."""
    if request.method == "POST":
        return HttpResponse("bought " + request.POST["what"])
    return HttpResponse(get_token(request))


def leave(request):
    return redirect(request.build_absolute_uri("/login/"))


def rows(request):
    return StreamingHttpResponse((f"row {number}\n" for number in range(1_000)), content_type="text/csv")


urlpatterns = [path("", home), path("form/", form), path("leave/", leave), path("rows/", rows)]

if __name__ == "__main__":
    django.setup()
    execute_from_command_line(sys.argv)
else:
    application = get_wsgi_application()
